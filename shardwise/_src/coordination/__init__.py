"""The coordinator of a multi-process program: who is alive, what each process launches, the end.

Plain Python over asyncio; nothing here imports jaxlib or NumPy.
"""
