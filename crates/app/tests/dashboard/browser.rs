//! A browser of its own for each test, driven by WebDriver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::process::PATIENCE;

/// Collects what a page must not do. Runs before the scripts of every page.
const COLLECTOR: &str = "
window.problems = [];
addEventListener('securitypolicyviolation', (e) => problems.push(`policy: ${e.violatedDirective} ${e.blockedURI}`));
addEventListener('error', (e) => problems.push(`error: ${e.message}`));
addEventListener('unhandledrejection', (e) => problems.push(`rejection: ${e.reason}`));
for (const kind of ['error', 'warn']) console[kind] = (...texts) => problems.push(`${kind}: ${texts.join(' ')}`);
";

/// The colours that the system of the reader prefers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Scheme::Light => "light",
            Scheme::Dark => "dark",
        }
    }
}

/// A browser. Ends when dropped.
pub(crate) struct Browser {
    client: Client,
    driver: Child,
    axe: String,
    profile: tempfile::TempDir,
}

/// A command of the DevTools protocol.
#[derive(Debug)]
struct DevTools(Value);

impl WebDriverCompatibleCommand for DevTools {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.0.to_string()))
    }
}

impl Browser {
    pub(crate) async fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let axe = fs::read_to_string(root.join("target/tools/axe/axe.min.js"));
        let axe = axe.expect("axe-core is missing: run `make tools`");
        #[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
        let path = std::env::var_os("TIDEGATE_CHROMEDRIVER");
        let path = path.map_or_else(|| PathBuf::from("chromedriver"), PathBuf::from);
        let mut driver = Command::new(path)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is missing: run `make tools`");
        let stdout = BufReader::new(driver.stdout.take().unwrap());
        let port = stdout.lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.expect("chromedriver says its port");
        let profile = tempfile::tempdir().unwrap();
        let arguments = json!([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--lang=en-GB",
            "--window-size=1280,900",
            format!("--user-data-dir={}", profile.path().display()),
        ]);
        let mut capabilities = serde_json::Map::new();
        capabilities.insert("goog:chromeOptions".to_owned(), json!({ "args": arguments }));
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser starts");
        let browser = Browser { client, driver, axe, profile };
        let source = json!({ "source": COLLECTOR });
        browser.command("Page.addScriptToEvaluateOnNewDocument", source).await;
        browser.command("Emulation.setTimezoneOverride", json!({ "timezoneId": "UTC" })).await;
        browser
    }

    async fn command(&self, name: &str, parameters: Value) {
        let command = DevTools(json!({ "cmd": name, "params": parameters }));
        self.client.issue_cmd(command).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Prefers these colours.
    pub(crate) async fn prefer(&self, scheme: Scheme) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme.as_str() });
        self.command("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
    }

    /// Has the screen of a phone.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 2, "mobile": true });
        self.command("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Waits until a script returns true.
    pub(crate) async fn wait_for(&self, script: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(script).await != json!(true) {
            if Instant::now() >= deadline {
                let text = self.run("return document.body.innerText").await;
                panic!("{script} is never true; the page: {text}; {}", self.problems().await);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the view has a text.
    pub(crate) async fn wait_for_text(&self, text: &str) {
        let text = json!(text);
        self.wait_for(&format!(
            "return document.querySelector('main').textContent.includes({text})"
        ))
        .await;
    }

    pub(crate) async fn theme(&self) -> String {
        let theme = self.run("return document.documentElement.dataset.theme").await;
        theme.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn click(&self, css: &str) {
        self.client.find(Locator::Css(css)).await.unwrap().click().await.unwrap();
    }

    pub(crate) async fn fill(&self, css: &str, text: &str) {
        let input = self.client.find(Locator::Css(css)).await.unwrap();
        input.clear().await.unwrap();
        input.send_keys(text).await.unwrap();
    }

    /// Types on the element that has the focus.
    pub(crate) async fn press(&self, keys: &str) {
        const ATTEMPTS_MAX: usize = 5;
        for attempt in 1..=ATTEMPTS_MAX {
            // The page may replace the element between the two commands.
            match self.client.active_element().await.unwrap().send_keys(keys).await {
                Ok(()) => return,
                Err(error) if is_replaced(&error) && attempt < ATTEMPTS_MAX => {
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{keys:?} cannot be pressed: {error}"),
            }
        }
    }

    /// Presses Tab until the element with this label has the focus.
    pub(crate) async fn tab_to(&self, label: &str) {
        const TABS_MAX: usize = 60;
        for _ in 0..TABS_MAX {
            self.press("\u{e004}").await;
            let focused = "return document.activeElement.getAttribute('aria-label')";
            if self.run(focused).await == json!(label) {
                return;
            }
        }
        panic!("Tab does not lead to {label}");
    }

    /// What the page did that it must not do.
    pub(crate) async fn problems(&self) -> Value {
        self.run("return window.problems").await
    }

    /// Fails if the accessibility checker has a serious finding, or if the page broke its policy.
    pub(crate) async fn assert_accessible(&self, what: &str) {
        self.run(&format!("if (!window.axe) {{ {} }}", self.axe)).await;
        let script = "
            const done = arguments[arguments.length - 1];
            axe.run(document, { resultTypes: ['violations'] }).then((found) => done(found.violations
                .filter(({ impact }) => impact === 'serious' || impact === 'critical')
                .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html + ' ' + node.failureSummary).slice(0, 3)}`)));";
        let findings = self.client.execute_async(script, Vec::new()).await.unwrap();
        assert_eq!(findings, json!([]), "{what}");
        assert_eq!(self.problems().await, json!([]), "{what}");
    }

    pub(crate) async fn screenshot(&self, file: &Path) {
        fs::write(file, self.client.screenshot().await.unwrap()).unwrap();
    }

    pub(crate) async fn end(self) {
        self.client.clone().close().await.unwrap();
    }
}

/// Whether a command met an element that the page has replaced, or a dialog that is closing.
fn is_replaced(error: &fantoccini::error::CmdError) -> bool {
    let text = error.to_string();
    text.contains("stale element") || text.contains("element not interactable")
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        // A test that fails leaves its browser behind: the one with this profile.
        let profile = self.profile.path().to_string_lossy().into_owned();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let arguments = fs::read_to_string(process.path().join("cmdline"));
            let id = process.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            if let (true, Some(id)) = (arguments.is_ok_and(|text| text.contains(&profile)), id) {
                let _ = kill_process(id, Signal::KILL);
            }
        }
    }
}
