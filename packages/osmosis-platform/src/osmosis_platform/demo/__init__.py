"""The main job from an empty folder to a served adapter, as a customer would do it."""
