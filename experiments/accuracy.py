"""The program //experiments:accuracy, which runs experiments/accuracy_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("accuracy", again="begins anew")
