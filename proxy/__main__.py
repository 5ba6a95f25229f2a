"""`python -m toolwire` is `toolwire`."""

from toolwire.cli import main

if __name__ == "__main__":
    main(prog_name="toolwire")
