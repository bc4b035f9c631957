#!/usr/bin/env python3
"""The page of `spmd-check report` in a real browser: scripts/report_page.py BINARY [FOLDER].

Needs playwright and Chromium (CHROMIUM names the program). Leaves light.png and dark.png in FOLDER. Checks that nothing is loaded from
elsewhere, that the arrows are drawn, that the switch hides what is of other configurations, and that the keyboard reaches everything.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parent.parent


def contrast(page, selector):
    """The contrast of a text with what is behind it, as WCAG computes it."""
    return page.evaluate(
        """(selector) => {
          const element = document.querySelector(selector);
          const parse = (c) => c.match(/[\\d.]+/g).map(Number);
          let at = element, back = [0, 0, 0, 0];
          while (at && (back.length > 3 && back[3] === 0)) { back = parse(getComputedStyle(at).backgroundColor); at = at.parentElement; }
          const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const [a, b] = [light(parse(getComputedStyle(element).color)), light(back)].sort((x, y) => y - x);
          return (a + 0.05) / (b + 0.05);
        }""",
        selector,
    )


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "corpus" / "tour", tree / "tour")
    (tree / "spmd-check.toml").write_text("")
    subprocess.run([binary, "report", "-q", "-o", folder / "report.html"], cwd=tree, check=True)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for scheme in ["light", "dark"]:
            context = browser.new_context(color_scheme=scheme, offline=True, viewport={"width": 1500, "height": 1300})
            page = context.new_page()
            asked, said = [], []
            page.on("request", lambda request: asked.append(request.url))
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto((folder / "report.html").as_uri())
            assert len(asked) == 1 and not said, (asked, said)
            assert page.locator(".arrows path[data-finding]").count() > 3, "arrows are drawn"
            for selector in ["h1", ".code", ".t.R", ".t.I", ".t.V", ".t.P", ".title b", ".axis", "nav a", ".help", "th[scope=row]"]:
                assert contrast(page, selector) >= 4.5, (scheme, selector, contrast(page, selector))
            # A name for every control, and an order that the keyboard follows.
            assert page.get_by_role("combobox", name="Configuration").count() == 1
            assert page.get_by_role("button", name="Arrows").get_attribute("aria-pressed") == "true"
            assert page.get_by_role("navigation", name="Files and functions").count() == 1
            assert page.get_by_role("row").count() > 50 and page.get_by_role("article").count() == 4
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.className") == "skip"
            page.keyboard.press("n")
            first = page.evaluate("document.activeElement.id")
            page.keyboard.press("n")
            assert first.startswith("d") and page.evaluate("document.activeElement.id") != first
            assert page.locator(".arrows path.on").count() > 0, "the arrows of the finding in focus stand out"
            page.screenshot(path=str(folder / f"{scheme}.png"))
            page.get_by_label("Configuration").select_option("sequence_parallel is true")
            assert page.locator("tr.finding:not(.hidden)").count() == 3
            assert "3 findings when sequence_parallel is true" in page.get_by_role("status").inner_text()
            page.get_by_role("button", name="Arrows").click()
            assert page.locator(".arrows path").count() == 0
            context.close()
        browser.close()
    print(f"the page works, light and dark: {folder}")


if __name__ == "__main__":
    main()
