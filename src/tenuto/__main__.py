"""`python -m tenuto` is the command `tenuto`."""

from tenuto.cli import main

if __name__ == "__main__":
    main()
