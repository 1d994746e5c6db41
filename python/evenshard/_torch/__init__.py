"""What evenshard.Optimizer is made of. Only these modules and optimizer.py need PyTorch."""
