"""The main job: trains any learner on any environment. ``python train.py --help`` says how."""

from flockax.agents.cli import main

if __name__ == "__main__":
    main()
