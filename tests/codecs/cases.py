"""Codecs and payloads for the suites that run over all of `registered_codecs()`."""

from subbit.conformance.cases import DRAWS as DRAWS
from subbit.conformance.cases import TEMPLATE as TEMPLATE
from subbit.conformance.cases import VARIANTS as VARIANTS
from subbit.conformance.cases import Subject as Subject
from subbit.conformance.cases import address_for as address_for
from subbit.conformance.cases import complaint as complaint
from subbit.conformance.cases import digest as digest
from subbit.conformance.cases import payload_bytes as payload_bytes
from subbit.conformance.cases import payloads as payloads
from subbit.conformance.cases import shared_for as shared_for
from subbit.conformance.cases import subjects as subjects
