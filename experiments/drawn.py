"""The program //experiments:drawn, which runs experiments/drawn_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("drawn")
