"""The job of these tests: small, and with a head phase."""

JOB = {
    "model": "mlp",
    "dataset": "digits",
    "select": "backbone: weights",
    "head": "lda",
    "clients": 2,
    "rounds": 2,
    "limit": 200,
    "test_limit": 100,
}
