#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Print the table of input/TUTORIAL.md as CSV: 20,000 clicks, a label, two numbers, and three
columns of text. A cell of the column `words` has any number of words.

    python3 tools/examples/make_clicks.py > clicks.csv
"""
import random

random.seed(1)
names = [f"u{i}" for i in range(200)] + [f"i{i}" for i in range(50)]
taste = {name: random.gauss(0, 1) for name in names}
print("clicked", "age", "price", "user", "item", "words", sep=",")
for _ in range(20000):
    user, item = f"u{random.randrange(200)}", f"i{random.randrange(50)}"
    words = "|".join(random.choices(["red", "new", "cheap", "sale", "xl"], k=random.randrange(4)))
    clicked = int(random.gauss(0, 1) < taste[user] + taste[item] - 0.5 * ("sale" not in words))
    age, price = random.randrange(18, 80), round(random.uniform(1, 99), 2)
    print(clicked, age, price, user, item, words, sep=",")
