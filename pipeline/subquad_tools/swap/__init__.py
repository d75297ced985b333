"""Another mixer in a trained model: its settings, its scores and the errors of its layers."""
