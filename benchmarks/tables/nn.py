"""Calls of nn and nn.initializers."""

from benchmarks.tables.kinds import A_CLASS, LeftOut, Table

TABLE: Table = {
    ("activation", "nn"): {
        "f(x)": """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu
            log1mexp log_sigmoid mish relu relu6 selu sigmoid silu soft_sign softplus sparse_plus
            sparse_sigmoid squareplus swish tanh"""
    },
    ("reduction", "nn"): {
        "f(matrix)": "log_softmax softmax standardize",
        "f(matrix) ": "logmeanexp logsumexp",
    },
    ("contraction", "nn"): {
        "f(heads, heads, heads)": "dot_product_attention",
        "f(matrix, matrix, (((1,), (1,)), ((), ())))": "scaled_dot_general",
        "f('mxfp8') | -": "get_scaled_dot_general_config",
    },
    ("creation", "nn"): {"f(i, 8)": "one_hot"},
    ("random", "nn.initializers"): {
        "f()(key, (rows, columns))": """glorot_normal glorot_uniform he_normal he_uniform
            kaiming_normal kaiming_uniform lecun_normal lecun_uniform normal truncated_normal
            uniform xavier_normal xavier_uniform""",
        "f(1.0)(key, (rows, columns))": "constant",
        "f()(key, (8, 8))": "orthogonal",
        "f()(key, (3, 8, 8))": "delta_orthogonal",
        "f(key, (rows, columns))": "ones zeros",
        "f(1.0, 'fan_in', 'normal')(key, (rows, columns))": "variance_scaling",
    },
}

LEFT_OUT: LeftOut = {
    "nn.initializers": {A_CLASS: "Initializer"},
    "nn": {"jax has none for CPUs": "scaled_matmul"},
}
