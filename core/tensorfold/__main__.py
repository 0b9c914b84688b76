"""`python -m tensorfold`."""

from tensorfold.cli import main

main()
