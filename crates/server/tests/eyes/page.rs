//! The page of a whole server, as a browser shows it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use afar_server::config::Config;
use afar_server::{Process, local_cell};
use afar_telemetry::{Cells, Collect, Desc, Unit};
use serde_json::json;
use tokio::time::sleep;

use crate::browser::Browser;
use crate::{call, config};

const ADDRESS: &str = "127.93.0.11";
const PAGE: &str = "127.93.0.11:9110";
const TOKEN: &str = "0123456789abcdef";
/// A directory where pictures of the page are left, for people to look at.
const PICTURES: &str = "AFAR_TEST_PICTURES";

/// A busy client whose name is more than a name.
struct Hostile(AtomicU64);

const CALLS: Desc = Desc::counter("afar_client_calls_total", Unit::None, "Calls.");
const NAME: &str = "<img src=x onerror=alert(1)>";

impl Collect for Hostile {
    fn describe(&self) -> Vec<Desc> {
        Vec::new()
    }

    fn collect(&self, cells: &mut Cells) {
        let labels = [("address", "192.0.2.66"), ("user", NAME)];
        let labels = [labels[0], labels[1], ("operation", NAME)];
        let calls = self.0.fetch_add(100_000, Ordering::Relaxed);
        cells.count(&CALLS, &labels, calls);
    }
}

fn with_page(dir: &std::path::Path) -> Config {
    let token = dir.join("web.token");
    std::fs::write(&token, TOKEN).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, private).unwrap();
    let mut config = config(dir, ADDRESS);
    config.web.listen = Some(PAGE.parse().unwrap());
    config.web.token = Some(token);
    config.check().unwrap();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let Some(browser) = Browser::start(&dir.path().join("profile")) else {
        println!("skipped: there is no chromium (apt-get install chromium)");
        return;
    };
    let process = Process::start(with_page(dir.path())).await.unwrap();
    process.found_cell().await.unwrap();
    process.registry().collector(Hostile(AtomicU64::new(7)));
    let run = dir.path().join("run");
    let calls = tokio::spawn(async move {
        let endpoint = local_cell::endpoint(&run, afar_net::Config::default()).unwrap();
        loop {
            call(&endpoint, ADDRESS).await;
            sleep(Duration::from_millis(50)).await;
        }
    });
    let looked = tokio::task::spawn_blocking(move || look(browser));
    let looked = looked.await;
    calls.abort();
    looked.unwrap();
    process.stop().await.unwrap();
}

/// Looks at the page in several windows.
fn look(mut browser: Browser) {
    let pictures = std::env::var_os(PICTURES).map(PathBuf::from);
    for (width, height, scheme) in [
        (1280, 900, "light"),
        (390, 844, "dark"),
        (390, 844, "light"),
        (1280, 900, "dark"),
    ] {
        let window = json!({
            "width": width, "height": height, "mobile": width < 800,
            "deviceScaleFactor": if width < 800 { 2 } else { 1 },
        });
        browser.call("Emulation.setDeviceMetricsOverride", &window);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.call("Emulation.setEmulatedMedia", &json!({"features": features}));
        // A browser asks for the password only once, and sends it with all requests from then on.
        let url = format!("http://viewer:{TOKEN}@{PAGE}/");
        browser.call("Page.navigate", &json!({"url": url}));
        browser.wait("document.readyState === 'complete' && document.getElementById('tiles').children.length > 0");
        browser.wait(
            "document.querySelector('.spark-line').getAttribute('d')?.split('L').length >= 5",
        );
        // The servers of the cell are asked meanwhile.
        browser.wait("document.getElementById('servers').textContent.includes('/vicepa')");
        let place = format!("{width} {scheme}");
        let holds = [
            (
                "it is live",
                "document.querySelector('#link.live') !== null",
            ),
            (
                "the cell is named",
                "document.getElementById('cell').textContent === 'test.example'",
            ),
            (
                "a volume is shown",
                "document.getElementById('volumes').textContent.includes('root.cell')",
            ),
            (
                "operations are shown",
                "document.getElementById('operations').rows.length > 5",
            ),
            (
                "clients are shown",
                "document.getElementById('clients').textContent.includes('superuser')",
            ),
            (
                "names are only names",
                "document.getElementById('clients').textContent.includes('<img src=x onerror')",
            ),
            (
                "the icon is the only picture",
                "document.images.length === 1",
            ),
            (
                "the page fits the window",
                "document.documentElement.scrollWidth <= innerWidth",
            ),
            (
                "text is large enough",
                "[...document.querySelectorAll('td, th, p, dd, dt')].every((e) => parseFloat(getComputedStyle(e).fontSize) >= 12)",
            ),
        ];
        for (what, expression) in holds {
            let holds = browser.value(expression);
            let shown = browser.value("document.body.innerText");
            assert_eq!(holds, json!(true), "{place}: {what}: {shown}");
        }
        if let Some(pictures) = &pictures {
            std::fs::create_dir_all(pictures).unwrap();
            let file = pictures.join(format!("page-{width}-{scheme}.png"));
            std::fs::write(file, browser.picture()).unwrap();
        }
    }
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}
