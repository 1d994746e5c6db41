"""The program //experiments:sharding, which runs experiments/sharding_experiment.py."""

import sys

_INTERRUPTED = 130


def main():
    try:
        # Loading takes a second. Ctrl-C must end the program then as it does later.
        from experiments import sharding_experiment

        return sharding_experiment.main()
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
