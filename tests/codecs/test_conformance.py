"""The laws that every registered codec keeps, whoever wrote it (`subbit.conformance.codec_laws`)."""

from __future__ import annotations

import pytest
from cases import Subject, subjects

from subbit.conformance.laws import Law, laws_of

pytestmark = pytest.mark.timeout(120)  # A decoder that hangs on hostile bytes is a failure too.


@pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.label) for subject in subjects()])
@pytest.mark.parametrize("law", [pytest.param(law, id=law.holds.__name__) for law in laws_of("codec")])
def test_it_keeps_the_law(law: Law, subject: Subject) -> None:
    law.holds(subject)
