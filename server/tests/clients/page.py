#!/usr/bin/env python3
"""Uses the chat page and the status page as a person does, in headless Chromium.

    python3 page.py URL [CHROMIUM]

The server must answer with the replies of page.jsonl (`warpwright serve MODEL --scripted page.jsonl`). Needs the package
playwright, and Chromium from the system: playwright's own download is not used.
"""
import shutil
import sys

from playwright.sync_api import sync_playwright


def check(what, holds, seen=""):
    if not holds:
        sys.exit(f"page: {what}: {seen!r}")
    print(f"page: {what}")


def until(page, script):
    """Waits until a script is true. Playwright's own wait evaluates text in the page, which its policy forbids."""
    for _ in range(300):
        if page.evaluate(script):
            return
        page.wait_for_timeout(100)
    sys.exit(f"page: this did not become true: {script}")


def ask(page, text):
    """Sends a message and waits for the end of its reply."""
    before = page.locator(".figures").count()
    page.fill("#input", text)
    page.keyboard.press("Enter")
    page.locator(".figures").nth(before).wait_for()


def main(url, chromium):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        page = context.new_page()
        requests, errors = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))

        page.goto(url)
        check("the message has the focus", page.evaluate("document.activeElement.id") == "input")
        ask(page, "show markdown")
        reply = page.locator("article.assistant").last
        check("Markdown becomes elements", reply.locator("strong").inner_text() == "bold" and reply.locator("pre code").count() == 1)
        check("reasoning is folded", reply.locator("details.reasoning").count() == 1 and not reply.locator("details .text").is_visible())
        check("scripts of a reply do not run", page.evaluate("window.hacked === undefined") and reply.locator("img, script").count() == 0)

        page.fill("#input", "a long reply")
        page.click("#send")
        until(page, "document.querySelector('article:last-child .body')?.textContent.length > 20")
        page.keyboard.press("Escape")
        page.wait_for_selector(".cut")
        stopped = page.locator(".cut").inner_text()
        check("Escape stops a reply", stopped == "Stopped.", stopped)

        page.reload()
        page.wait_for_selector("article")
        check("a conversation survives a reload", page.locator("article").count() == 4, page.locator("article").count())

        page.locator("article.user").first.get_by_role("button", name="Edit").click()
        page.fill(".edit", "hello again")
        page.get_by_role("button", name="Send again").click()
        until(page, "document.querySelectorAll('article').length == 2 && document.querySelector('.figures')")
        check("an edited message replaces what followed", "hello again" in page.locator("article.user").inner_text())

        page.locator("article.assistant").get_by_role("button", name="Try again").click()
        until(page, "document.querySelectorAll('article').length == 2 && document.querySelector('.figures')")
        page.click("#open-settings")
        page.fill("#set-temperature", "0.5")
        page.fill("#set-tools", "{")
        page.click("#save-settings")
        check("settings that are wrong are refused", "JSON" in page.inner_text("#settings-problem"))
        page.fill("#set-tools", "")
        page.click("#save-settings")
        with page.expect_request("**/v1/chat/completions") as sent:
            ask(page, "hello")
        check("settings are sent", sent.value.post_data_json["temperature"] == 0.5)

        page.set_viewport_size({"width": 360, "height": 640})
        width = page.evaluate("document.documentElement.scrollWidth")
        check("nothing is wider than a phone", width <= 360, width)
        page.click("#open-sidebar")
        check("the list opens on a phone", page.locator("#conversations .open").first.is_visible())
        page.keyboard.press("Escape")

        page.set_viewport_size({"width": 1200, "height": 800})
        page.goto(url + "/status")
        page.wait_for_selector("h2")
        check("the status page shows the model", page.locator("dl dd").count() >= 7)

        outside = [request for request in requests if not request.startswith((url, "data:"))]
        check("no outside request", not outside, outside)
        check("no error in the console", not errors, errors)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    found = sys.argv[2] if len(sys.argv) == 3 else shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        sys.exit("page: there is no Chromium; give its path")
    main(sys.argv[1].rstrip("/"), found)
