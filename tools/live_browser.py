#!/usr/bin/env python3
"""The page of a run (snug train --serve) in a real browser: the loss moves, the token is wanted, keys and phones work.

    tools/live_browser.py test build/snug
    tools/live_browser.py shot build/snug FOLDER      pictures: light, dark, 400 pixels wide
"""
import json, os, re, shutil, subprocess, sys, tempfile, time

from page_browser import Browser, expect

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Run:
    """A small model that trains, with its page."""

    def __init__(self, snug):
        self.folder = tempfile.mkdtemp(prefix="snug-live-")
        self.out = os.path.join(self.folder, "out")
        config = os.path.join(self.folder, "tiny.yaml")
        subprocess.run([snug, "init", config, "--preset", "cpu", "--output-dir", self.out, "--quiet"], check=True)
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.process = subprocess.Popen(
            [snug, "train", config, "model.num_hidden_layers=2", "model.hidden_size=64", "model.intermediate_size=128", "max_seq_length=64",
             "max_steps=1000000", "warmup_steps=20", "save_strategy=no", 'sample_prompts=["Once upon a time, ", "<b>The"]', "sample_steps=100",
             "--serve=0"], stdout=subprocess.DEVNULL, stderr=self.log)
        self.url = None
        for _ in range(300):
            found = re.search(r"http://\S+", open(self.log.name).read())
            if found and os.path.exists(os.path.join(self.out, ".snug-live")):
                self.url = found.group()
                break
            time.sleep(0.1)
        if not self.url:
            sys.exit("the run has not begun:\n" + open(self.log.name).read())

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def go(b, url, width=1200, height=1000, dark=False, touch=False):
    b.events = []
    b.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    b.call("Page.navigate", url="about:blank")
    b.call("Page.navigate", url=url)
    wait(b, "document.readyState === 'complete' && document.getElementById('state').textContent === 'training' && document.getElementById('loss-read').textContent.includes('loss')")


def wait(b, condition, seconds=20):
    for _ in range(10 * seconds):
        try:
            if b.evaluate(f"Boolean({condition})"):
                return True
        except RuntimeError:
            pass
        time.sleep(0.1)
    return False


def complaints(b, url):
    origin = url.split("/#")[0] + "/"
    found = []
    for e in b.events:
        if e["method"] == "Runtime.exceptionThrown":
            found.append(json.dumps(e["params"])[:300])
        if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error" and "403" not in e["params"]["entry"]["text"]:
            found.append(json.dumps(e["params"])[:300])
        if e["method"] == "Network.requestWillBeSent" and not e["params"]["request"]["url"].startswith((origin, "about:")):
            found.append(e["params"]["request"]["url"][:200])
    return found


def text(b, name):
    return b.evaluate(f"document.getElementById('{name}').textContent")


def test_live(b, run):
    go(b, run.url.split("#")[0])
    bad = expect(text(b, "title") == "llama", "the page says which model it is")
    before, step = text(b, "loss-read"), text(b, "steps")
    bad += expect(wait(b, f"document.getElementById('loss-read').textContent !== {json.dumps(before)}"), "the loss moves")
    bad += expect(wait(b, f"document.getElementById('steps').textContent !== {json.dumps(step)}"), "and so do the steps")
    cursor = b.evaluate("document.getElementById('tier-device').toDataURL()")
    bad += expect(wait(b, f"document.getElementById('tier-device').toDataURL() !== {json.dumps(cursor)}"), "the cursor in the planned memory moves")
    bad += expect(wait(b, "document.getElementById('sample-list').textContent.includes('Once upon a time, ')"), "what the model writes is there")
    bad += expect(b.evaluate("document.querySelector('#sample-list b') === null && document.getElementById('sample-list').textContent.includes('<b>The')"), "as text")
    samples = text(b, "sample-list")
    bad += expect(wait(b, f"document.getElementById('sample-list').textContent !== {json.dumps(samples)}"), "and more of it comes")
    bad += expect("output_dir" in b.evaluate("document.getElementById('config').textContent"), "the config is there")
    bad += expect(run.folder not in b.evaluate("document.documentElement.outerHTML"), "and no path of the machine")
    return bad


def test_token(b, run):
    b.evaluate("sessionStorage.clear()")
    go(b, run.url.split("#")[0])
    b.press("Pause")
    bad = expect(wait(b, "!document.getElementById('token-form').hidden"), "without a token it is asked for")
    b.evaluate("(() => { document.getElementById('token').value = 'wrong'; document.getElementById('token-form').requestSubmit(); })()")
    b.press("Pause")
    bad += expect(wait(b, "document.getElementById('said').textContent.includes('token')"), "a wrong one is refused")
    bad += expect(not os.path.exists(os.path.join(run.out, "PAUSE")), "and nothing has happened")
    go(b, run.url)
    bad += expect("token" not in b.evaluate("location.href"), "the token leaves the address bar")
    b.press("Save now")
    bad += expect(wait(b, "document.getElementById('events').textContent.includes('saved checkpoint-')"), "with it the run saves")
    b.press("Pause")
    bad += expect(wait(b, "document.getElementById('state').textContent === 'paused'"), "and pauses")
    b.press("Go on")
    return bad + expect(wait(b, "document.getElementById('state').textContent === 'training'"), "and goes on")


def set_budget(b, text):
    b.evaluate(f"(() => {{ document.getElementById('budget').value = '{text}'; document.getElementById('budget-form').requestSubmit(); }})()")


def test_budget(b, run):
    b.evaluate("sessionStorage.clear()")
    go(b, run.url.split("#")[0])
    set_budget(b, "device_memory=auto")
    bad = expect(wait(b, "!document.getElementById('token-form').hidden"), "a budget takes the token")
    go(b, run.url)
    set_budget(b, "device_memory=auto")
    bad += expect(wait(b, "document.getElementById('events').textContent.includes('budget: device_memory=auto')"), "with it the run changes over")
    set_budget(b, "device_memory=64KiB")
    bad += expect(wait(b, "document.getElementById('events').textContent.includes('refused: device_memory=64KiB')"), "what does not fit is refused")
    before = text(b, "loss-read")
    return bad + expect(wait(b, f"document.getElementById('loss-read').textContent !== {json.dumps(before)}"), "and the run goes on")


def test_keys(b, run):
    go(b, run.url)
    b.evaluate("document.getElementById('loss').focus()")
    b.key("Home", 36)
    bad = expect(re.match(r"steps? 1\b", text(b, "loss-read")), "Home reads the first step")
    b.key("ArrowRight", 39)
    return bad + expect(not re.match(r"steps? 1\b", text(b, "loss-read")), "an arrow key the next")


def test_phone(b, run):
    go(b, run.url, 400, 800, touch=True)
    wait(b, "!document.getElementById('samples').hidden")
    wide = b.evaluate("document.documentElement.scrollWidth")
    return expect(wide <= 400, f"400 pixels are wide enough ({wide})")


def test(snug):
    run, b, bad = Run(snug), Browser(), 0
    try:
        for part in (test_live, test_token, test_budget, test_keys, test_phone):
            bad += part(b, run)
            found = complaints(b, run.url)
            bad += expect(not found, "nothing to complain about" + "".join("\n    " + f for f in found))
    finally:
        b.close()
        run.close()
    return 1 if bad else 0


def shots(snug, folder):
    run, b = Run(snug), Browser()
    os.makedirs(folder, exist_ok=True)
    try:
        time.sleep(10)
        for name, options in (("light", {}), ("dark", {"dark": True}), ("phone", {"width": 400, "height": 800, "touch": True})):
            go(b, run.url, **options)
            b.shot(f"{folder}/live-{name}.png")
    finally:
        b.close()
        run.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "test":
        sys.exit(test(sys.argv[2]))
    if len(sys.argv) == 4 and sys.argv[1] == "shot":
        sys.exit(shots(*sys.argv[2:]))
    sys.exit(__doc__)
