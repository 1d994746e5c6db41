"""The program //experiments:sharding, which runs experiments/sharding_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("sharding")
