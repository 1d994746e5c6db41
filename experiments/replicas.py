"""The program //experiments:replicas, which runs experiments/replicas_experiment.py."""

from experiments import start

if __name__ == "__main__":
    start.run("replicas", again="begins anew")
