from collections.abc import Sequence
from enum import Enum

from ..ir import Attribute, Context, OpResult, OpView, Value

class ConstantOp(OpView):
    def __init__(self, value: Attribute) -> None: ...

class CreateTokenOp(OpView):
    def __init__(self) -> None: ...

class CustomCallOp(OpView): ...

class OutputOperandAlias(Attribute):
    @staticmethod
    def get(
        output_tuple_indices: Sequence[int],
        operand_index: int,
        operand_tuple_indices: Sequence[int],
    ) -> OutputOperandAlias: ...

class StablehloCompatibilityRequirement(Enum):
    WEEK_4 = ...

def concatenate(inputs: Sequence[Value], dimension: int) -> OpResult: ...
def get_version_from_compatibility_requirement(
    requirement: StablehloCompatibilityRequirement,
) -> str: ...
def register_dialect(context: Context, load: bool = True) -> None: ...
