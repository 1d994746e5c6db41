"""The program //experiments:time_to_accuracy, which runs
experiments/time_to_accuracy_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("time_to_accuracy", again="begins anew")
