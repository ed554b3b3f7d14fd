"""Asynchronous copies, semaphores, pipelines, and kernels on several devices."""
