import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subbit.core.errors import ModelError
from subbit.models.template import Template

names = st.lists(st.text(max_size=5), unique=True, max_size=4)


def test_layout_by_hand():
    """A 2x3 matrix, a scalar, an empty tensor and a vector of 4: they start at 0, 6, 7 and 7 and end at 11."""
    template = Template(("a", "b", "c", "d"), ((2, 3), (), (0, 5), (4,)))
    assert template.size == 11
    assert template.offsets == (0, 6, 7, 7)
    flat = torch.arange(11.0)
    matrix, scalar, empty, vector = template.views(flat)
    assert matrix.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert scalar.item() == 6
    assert empty.shape == (0, 5)
    vector[0] = -1.0
    assert flat[7] == -1.0


def test_empty_template():
    template = Template((), ())
    assert (template.size, template.offsets, template.views(torch.empty(0))) == (0, (), [])


@given(names, names, st.text(max_size=3), st.text(max_size=3))
def test_digests_differ_where_anything_differs(first, second, salt, other_salt):
    """Joining names by a separator would make ("a,b",) and ("a", "b") alike: no text of a name may do that."""
    digest = Template(tuple(first), ((1,),) * len(first)).digest(salt)
    other = Template(tuple(second), ((1,),) * len(second)).digest(other_salt)
    assert len(digest) == 8
    assert (digest == other) == ((first, salt) == (second, other_salt))


def test_digest_sees_shapes_and_order():
    digests = {
        Template(("a", "b"), ((2, 3), (1,))).digest(),
        Template(("a", "b"), ((3, 2), (1,))).digest(),
        Template(("b", "a"), ((2, 3), (1,))).digest(),
        Template(("a", "b"), ((6,), (1,))).digest(),
    }
    assert len(digests) == 4


def test_digest_is_pinned():
    """It is part of every frame: another value would be another wire format."""
    assert Template(("weight", "bias"), ((2, 3), (2,))).digest("fedpm/scores").hex() == "db215c263b5f8c32"


@pytest.mark.parametrize(("names", "shapes"), [(("a", "a"), ((1,), (1,))), (("a",), ((1,), (2,)))])
def test_refuses_what_is_no_template(names, shapes):
    with pytest.raises(ModelError):
        Template(names, shapes)


def test_refuses_vectors_of_another_size():
    with pytest.raises(ModelError, match="8 values"):
        Template(("weight", "bias"), ((2, 3), (2,))).views(torch.zeros(9))
