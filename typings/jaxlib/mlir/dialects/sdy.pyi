# Shardy's attributes. The constructors cast; parts of an attribute have the type `Attribute`.
from ..ir import Attribute, Context

class TensorShardingPerValueAttr(Attribute):
    @property
    def shardings(self) -> list[Attribute]: ...  # TensorShardingAttr

class TensorShardingAttr(Attribute):
    @property
    def mesh_or_ref(self) -> Attribute: ...
    @property
    def dimension_shardings(self) -> list[Attribute]: ...  # DimensionShardingAttr

class DimensionShardingAttr(Attribute):
    @property
    def axes(self) -> list[Attribute]: ...  # AxisRefAttr

class AxisRefAttr(Attribute):
    @property
    def name(self) -> str: ...
    @property
    def sub_axis_info(self) -> Attribute | None: ...  # SubAxisInfoAttr

class SubAxisInfoAttr(Attribute):
    @property
    def pre_size(self) -> int: ...
    @property
    def size(self) -> int: ...

class ManualAxesAttr(Attribute):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> str: ...

def register_dialect(context: Context, load: bool = True) -> None: ...
