from .._hlo import XlaComputation
from ..mlir import ir

def mlir_module_to_xla_computation(
    mlir_module: str | bytes, use_tuple_args: bool = False, return_tuple: bool = False
) -> XlaComputation: ...
def serialize_portable_artifact(
    mlir_module: ir.Module, target: str, use_mixed_serialization: bool = False
) -> bytes: ...
def deserialize_portable_artifact(
    mlir_module: bytes, context: ir.Context | None = None
) -> ir.Module: ...
def refine_polymorphic_shapes(
    mlir_module: bytes,
    enable_shape_assertions: bool = True,
    validate_static_shapes: bool = True,
    enable_shardy: bool = False,
) -> bytes: ...
