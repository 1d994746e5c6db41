"""The program //experiments:modes, which runs experiments/modes_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("modes")
