"""What is fetched from registries: requests, logins and the cache."""
