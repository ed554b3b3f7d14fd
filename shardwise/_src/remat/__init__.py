"""What reverse mode keeps and what it computes again."""
