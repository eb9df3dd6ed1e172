"""What `gpu_smoke.sh` runs."""
