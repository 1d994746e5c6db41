"""The program //experiments:checkpoints, which runs experiments/checkpoints_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("checkpoints", again="begins anew")
