"""Find and render prompt commands addressed by domain, action and target."""
