"""Benchmarks: what onebus does per second, beside what its stores can do and what people usually do with them.

python -m bench log --quick
python -m bench busmq --quick
"""
