"""`python -m onebus.cli` is `onebus`."""

from onebus.cli import main

main()
