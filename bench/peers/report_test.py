"""The table's arithmetic on results made up by hand, and which cases a pattern means. Needs no torch."""

import unittest

import cases
import report


def side(*turns, rss=None, note=""):
    return {"turns": list(turns), "median": sorted(turns)[len(turns) // 2] if turns else None, "note": note,
            "peak_rss_bytes": rss}


def case(precision, ours, **theirs):
    return {"name": f"nano-8x128-{precision}", "precision": precision, "theirs": theirs,
            "ours": {**ours, "mfu": 0.6, "mfu_roof": "f32"}}


F32 = case("f32", side(150, 200, 300, rss=50e6), eager=side(100, 100, 100, rss=200e6),
           compile=side(100, 125, 150, rss=250e6))
SLOW = case("bf16", side(250, 250, 250, rss=40e6), eager=side(note="over 60 s a step"))


class Report(unittest.TestCase):
    def test_ratio_is_of_medians_to_the_better_variant(self):
        row = report.case_row(F32, [F32], ("eager", "compile"))
        self.assertEqual(row[4], "**1.60** (1.50 to 2.00)")  # 200/125; turns 150/100, 200/125, 300/150
        self.assertEqual(row[5], "60%, 38% of f32")

    def test_memory_is_against_the_least_of_the_variants(self):
        self.assertEqual(report.case_row(F32, [F32], ("eager", "compile"))[-3:], ["50", "200", "**0.25**"])

    def test_what_was_given_up_says_why_and_f32_takes_its_place(self):
        row = report.case_row(SLOW, [F32, SLOW], ("eager", "compile"))
        self.assertEqual(row[2:4], ["over 60 s a step", "not tried"])
        self.assertEqual(row[4], "**2.00** (1.67 to 2.50) to its f32")

    def test_no_rival_gives_no_ratio(self):
        row = report.case_row(SLOW, [SLOW], ("eager",))
        self.assertEqual(row[3:5], ["-", "60% of f32"])

    def test_columns_line_up(self):
        lines = report.table(["a", "long head"], [["long cell", "b"]]).splitlines()
        self.assertEqual(len({len(line) for line in lines}), 1, lines)


class Cases(unittest.TestCase):
    def test_patterns_select_in_the_order_of_the_table(self):
        self.assertEqual(cases.selected(["islands", "nano-*"]), ["nano-8x128-f32", "nano-8x128-bf16", "islands"])

    def test_a_pattern_that_means_nothing_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no case is called micro"):
            cases.selected(["micro"])


if __name__ == "__main__":
    unittest.main()
