"""`python -m accelhub`."""

from accelhub.cli import main

main()
