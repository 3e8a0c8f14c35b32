"""Who is trusted: identities, verified attestations, and the policy that weighs them."""
