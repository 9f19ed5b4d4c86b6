#!/usr/bin/env python3
"""Opens the page of a plan in a real browser (headless Chromium) and looks at it.

    tools/page_browser.py test build/snug            plans, loads the page, points at things, reads the tips
    tools/page_browser.py shot plan.html FOLDER      pictures of it: light, dark, 400 pixels wide, by address

Needs Chromium, and nothing of Python but its own library: it speaks the browser's debugging protocol over a socket.
"""
import base64, json, os, shutil, socket, struct, subprocess, sys, tempfile, time, urllib.request


class Browser:
    """A page in a headless Chromium, over its debugging protocol (WebSocket, RFC 6455)."""

    def __init__(self):
        program = next((p for p in ("chromium", "chromium-browser", "google-chrome") if shutil.which(p)), None)
        if not program:
            sys.exit("skipped: there is no Chromium")
        self.folder = tempfile.mkdtemp(prefix="snug-browser-")
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
             "--disable-background-networking", f"--user-data-dir={self.folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.messages = 0
        self.events = []
        self.connect()

    def connect(self):
        note = os.path.join(self.folder, "DevToolsActivePort")
        for _ in range(300):
            if os.path.exists(note) and open(note).read().count("\n"):
                break
            time.sleep(0.1)
        port = int(open(note).readline())
        for _ in range(100):
            pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
            pages = [p for p in pages if p["type"] == "page"]
            if pages:
                break
            time.sleep(0.1)
        path = pages[0]["webSocketDebuggerUrl"].split(str(port), 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.stream = self.socket.makefile("rb")
        while self.stream.readline().strip():
            pass
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def send(self, text):
        data = text.encode()
        mask = os.urandom(4)
        size = struct.pack("!BBH", 0x81, 0xfe, len(data)) if len(data) < 65536 else struct.pack("!BBQ", 0x81, 0xff, len(data))
        self.socket.sendall(size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, size = struct.unpack("!BB", self.stream.read(2))
            if size == 126:
                size = struct.unpack("!H", self.stream.read(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self.stream.read(8))[0]
            text += self.stream.read(size)
            if first & 0x80:
                return json.loads(text)

    def call(self, method, **params):
        self.messages += 1
        self.send(json.dumps({"id": self.messages, "method": method, "params": params}))
        while True:
            answer = self.receive()
            if answer.get("id") == self.messages:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script):
        """What a script gives, once its promise is kept."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, path, width=1400, height=1000, dark=False, touch=False):
        self.events = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if touch else 1, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=f"file://{os.path.abspath(path)}")
        self.evaluate("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")
        self.settle()

    def settle(self):
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def drag(self, x0, y0, x1, y1):
        for kind, x, y in (("mousePressed", x0, y0), ("mouseMoved", (x0 + x1) / 2, (y0 + y1) / 2), ("mouseMoved", x1, y1), ("mouseReleased", x1, y1)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.settle()

    def key(self, name, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)
        self.settle()

    def tip(self):
        return self.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")

    def place(self, index):
        """Where on the screen the drawing of that index is."""
        self.evaluate(f"document.querySelectorAll('canvas')[{index}].scrollIntoView({{block: 'center'}})")
        self.settle()
        return self.evaluate(f"(() => {{ const r = document.querySelectorAll('canvas')[{index}].getBoundingClientRect();"
                             " return [r.left, r.top, r.width, r.height]; })()")

    def press(self, text):
        self.evaluate(f"[...document.querySelectorAll('button')].find(b => b.textContent === {json.dumps(text)}).click()")
        self.settle()

    def shot(self, path, whole=True):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        more = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def expect(condition, what):
    print(("ok      " if condition else "FAILED  ") + what)
    return 0 if condition else 1


def complaints(b):
    """Errors of scripts, what the policy refused, and what was asked of a network."""
    found = []
    for e in b.events:
        if e["method"] == "Runtime.exceptionThrown" or (e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"):
            found.append(json.dumps(e["params"])[:300])
        if e["method"] == "Network.requestWillBeSent" and not e["params"]["request"]["url"].startswith("file://"):
            found.append(e["params"]["request"]["url"][:200])
    return found


def test_mouse(b, page):
    b.open(page)
    bad = expect(b.evaluate("document.title").endswith("Snug plan"), "the page has loaded and has its title")
    left, top, width, height = b.place(0)
    b.move(left + width / 2, top + height - 60)
    tip = b.tip()
    bad += expect("alive" in tip and "weights" in tip and "largest of" in tip, "a class: the tip says what is alive and the largest of it")
    b.press("by address")
    left, top, width, height = b.place(0)
    b.move(left + width / 2, top + height - 60)
    tip = b.tip()
    bad += expect(all(x in tip for x in ("class", ", device", "bytes)", "address", "alive", "why")), "a buffer: the tip says its name, class, bytes, address, life and why")
    name = tip.split("\n")[0]
    bad += expect(b.evaluate(f"JSON.parse(document.getElementById('plan').textContent).plan.names.includes({json.dumps(name)})"),
                  "its name is one of the plan's")
    before = b.evaluate("[...document.querySelectorAll('canvas')].map(c => c.toDataURL().length).join()")
    b.drag(left + width * 0.4, top + 60, left + width * 0.5, top + height - 80)
    bad += expect(before != b.evaluate("[...document.querySelectorAll('canvas')].map(c => c.toDataURL().length).join()"), "dragging zooms in")
    b.press("whole step")
    b.press("instruction order")
    n = b.evaluate("document.querySelectorAll('canvas').length")
    left, top, width, height = b.place(n - 1)
    for part in range(40, 60): # of the lane, until what runs there is an instruction of it
        b.move(left + width * part / 100, top + 25)
        tip = b.tip()
        if tip:
            break
    bad += expect("predicted" in tip and "kernel" in tip and "queue" in tip, "an instruction: the tip says its part, queue, time and kernel")
    b.move(2, 2)
    bad += expect(b.tip() == "", "away from a drawing there is no tip")
    return bad


def test_keys(b, page):
    b.open(page)
    b.press("by address")
    b.evaluate("document.querySelector('canvas').focus()")
    b.key("ArrowRight", 39)
    first = b.tip()
    b.key("ArrowRight", 39)
    bad = expect(first and b.tip() and first != b.tip(), "arrow keys walk from buffer to buffer")
    largest = b.evaluate("(() => { const p = JSON.parse(document.getElementById('plan').textContent).plan.buffers;"
                         " return Math.max(...p.bytes.filter((x, i) => p.tier[i] === 0 && p.into[i] < 0)); })()")
    bad += expect(f"({largest:,} bytes)" in first, "and begin with the largest")
    b.key("Escape", 27)
    return bad + expect(b.tip() == "", "Escape ends it")


def test_touch(b, page):
    b.open(page, 400, 800, touch=True)
    left, top, width, height = b.place(0)
    point = [{"x": left + width / 2, "y": top + height - 70}]
    b.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=point)
    b.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    b.settle()
    bad = expect("alive" in b.tip(), "a finger gets a tip too")
    wide = b.evaluate("document.documentElement.scrollWidth")
    return bad + expect(wide <= 400, f"400 pixels are wide enough ({wide})")


def test_speed(b, page):
    b.open(page)
    ms = b.evaluate("(() => { const t = performance.now(); for (let i = 0; i < 10; i++) for (const e of ['beforeprint', 'afterprint'])"
                    " dispatchEvent(new Event(e)); return (performance.now() - t) / 20; })()")
    return expect(ms < 100, f"all drawings are painted in {ms:.1f} ms")


def test(snug):
    folder = tempfile.mkdtemp(prefix="snug-page-")
    page = os.path.join(folder, "plan.html")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    b = Browser()
    bad = 0
    try:
        for config, more in (("gpt2-124m", ["device_memory=2GiB"]), ("llama-7b", ["device_memory=16GiB", "host_memory=120GiB"])):
            print(f"{config} {' '.join(more)}")
            subprocess.run([snug, "plan", f"{root}/configs/{config}.yaml", *more, "--quiet", "--html", page], check=True)
            for part in (test_mouse, test_keys, test_touch, test_speed):
                bad += part(b, page)
                found = complaints(b)
                bad += expect(not found, "nothing to complain about" + "".join("\n    " + f for f in found))
    finally:
        b.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


def shots(page, folder):
    b = Browser()
    os.makedirs(folder, exist_ok=True)
    try:
        for name, options in (("light", {}), ("dark", {"dark": True}), ("phone", {"width": 400, "height": 800, "touch": True})):
            b.open(page, **options)
            b.shot(f"{folder}/{name}.png")
        b.open(page)
        b.press("by address")
        left, top, width, height = b.place(0)
        b.move(left + width / 2, top + height * 0.45)
        b.shot(f"{folder}/address.png", whole=False)
    finally:
        b.close()
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "test":
        sys.exit(test(sys.argv[2]))
    if len(sys.argv) == 4 and sys.argv[1] == "shot":
        sys.exit(shots(*sys.argv[2:]))
    sys.exit(__doc__)
