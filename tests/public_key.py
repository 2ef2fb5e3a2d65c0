"""A public key of P-256, as PEM. Its private half signs nothing."""

PUBLIC_KEY = """\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEvrMXqTsGchTx6schpf3vGVMXRMzS
RuGqH2srMPsjnIRg2nevgV0vHR/FPBC+Piv7RCdHWcrQJhSSXWYCbkFANw==
-----END PUBLIC KEY-----
"""
