"""Payloads to bytes and back: see `subbit.codecs.base` for the seam. Importing this package registers every codec."""

from subbit.codecs import bits as bits
from subbit.codecs import bloom as bloom
from subbit.codecs import choose as choose
from subbit.codecs import context as context
from subbit.codecs import counts as counts
from subbit.codecs import dense as dense
from subbit.codecs import drive as drive
from subbit.codecs import eden as eden
from subbit.codecs import fedcode as fedcode
from subbit.codecs import filters as filters
from subbit.codecs import int8 as int8
from subbit.codecs import klms as klms
from subbit.codecs import qsgd as qsgd
from subbit.codecs import ranged as ranged
from subbit.codecs import rice as rice
from subbit.codecs import topk as topk
from subbit.codecs.base import Bits as Bits
from subbit.codecs.base import Codec as Codec
from subbit.codecs.base import Counts as Counts
from subbit.codecs.base import Kind as Kind
from subbit.codecs.base import Payload as Payload
from subbit.codecs.base import Shared as Shared
from subbit.codecs.base import Vector as Vector
from subbit.codecs.base import make_codec as make_codec
from subbit.codecs.base import register_codec as register_codec
from subbit.codecs.base import registered_codecs as registered_codecs
