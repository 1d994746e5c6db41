"""The program //experiments:advised, which runs experiments/advised_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("advised")
