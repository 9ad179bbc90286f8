"""Start of ``python -m adt``, which is the ``adt`` program."""

from adt.cli.main import main

if __name__ == "__main__":
    main()
