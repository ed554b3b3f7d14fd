"""The coordinator of a multi-process program: liveness, comparison of launches, shutdown.

Plain Python over asyncio; nothing here imports jaxlib or NumPy.
"""
