//! What Prometheus itself says: of a server's metrics, of the alerts, and to the dashboard's queries.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use afar_server::Process;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::queries::{dashboard, dist};
use crate::{config, use_it};

/// Of the server that Prometheus scrapes, and of Prometheus.
const ADDRESS: &str = "127.93.0.10";
const PROMETHEUS: &str = "127.93.0.10:9090";

/// Runs promtool, if there is one: what it prints, and whether all is well.
fn promtool(args: &[&str], input: &str) -> Option<(bool, String)> {
    let Ok(mut checker) = Command::new("promtool")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    else {
        println!("skipped: there is no promtool (Debian's package prometheus has it)");
        return None;
    };
    let mut pipe = checker.stdin.take().unwrap();
    pipe.write_all(input.as_bytes()).unwrap();
    drop(pipe);
    let output = checker.wait_with_output().unwrap();
    let says = [output.stdout, output.stderr].concat();
    let says = String::from_utf8_lossy(&says).into_owned();
    Some((output.status.success(), says))
}

/// The text of a server has nothing that a linter would change.
pub(crate) fn check_metrics(text: &str) {
    if let Some((success, says)) = promtool(&["check", "metrics"], text) {
        assert!(success && says.trim().is_empty(), "{says}");
    }
}

#[test]
fn alerts_fire_when_they_should() {
    let rules = std::fs::canonicalize(dist("prometheus/afar.rules.yml")).unwrap();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/eyes/alerts.yml");
    let cases = std::fs::read_to_string(cases).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("alerts.yml");
    let (rules, file) = (rules.to_str().unwrap(), file.to_str().unwrap());
    let cases = cases.replace("[RULES]", &format!("[{rules:?}]"));
    std::fs::write(file, cases).unwrap();
    for args in [["check", "rules", rules], ["test", "rules", file]] {
        if let Some((success, says)) = promtool(&args, "") {
            assert!(success, "{says}");
        }
    }
}

/// A program that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// What Prometheus answers at a path of its API.
async fn ask(path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(PROMETHEUS).await.ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {PROMETHEUS}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// A query as a part of an address.
fn encoded(query: &str) -> String {
    query.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02x}").unwrap();
        text
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Prometheus"]
async fn prometheus_answers_the_queries_of_the_dashboard() {
    let dir = tempfile::tempdir().unwrap();
    let rules = std::fs::canonicalize(dist("prometheus/afar.rules.yml")).unwrap();
    let file = dir.path().join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{rules:?}]\n\
         scrape_configs:\n- job_name: afar\n  static_configs: [{{targets: [\"{ADDRESS}:9109\"]}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let started = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("tsdb").display()
        ))
        .arg(format!("--web.listen-address={PROMETHEUS}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(started) = started else {
        println!("skipped: there is no prometheus (apt-get install prometheus)");
        return;
    };
    let _prometheus = Running(started);
    let process = Process::start(config(dir.path(), ADDRESS)).await.unwrap();
    process.found_cell().await.unwrap();
    let run = dir.path().join("run");

    // A rate needs two scrapes after the first call.
    let until = Instant::now() + Duration::from_secs(60);
    let scrapes = format!(
        "/api/v1/query?query={}",
        encoded("count_over_time(afar_hosts[1m])")
    );
    loop {
        use_it(&run, ADDRESS).await;
        let answer = ask(&scrapes).await.unwrap_or_default();
        let count = answer["data"]["result"][0]["value"][1].as_str();
        if count.is_some_and(|count| count.parse::<u32>().unwrap() > 5) {
            break;
        }
        assert!(
            Instant::now() < until,
            "Prometheus does not scrape: {answer}"
        );
        sleep(Duration::from_millis(200)).await;
    }

    let mut nothing = Vec::new();
    for query in dashboard() {
        let expr = ["$job", "$instance", "$interface"]
            .iter()
            .fold(query.expr.clone(), |expr, name| expr.replace(name, ".*"));
        let expr = expr.replace("$__rate_interval", "30s");
        let answer = ask(&format!("/api/v1/query?query={}", encoded(&expr)))
            .await
            .unwrap();
        assert_eq!(
            answer["status"], "success",
            "{}: {expr}: {answer}",
            query.panel
        );
        if answer["data"]["result"].as_array().unwrap().is_empty() {
            nothing.push(format!("{}: {expr}", query.panel));
        }
    }
    assert!(nothing.is_empty(), "no numbers for {nothing:#?}");
    let answer = ask("/api/v1/rules").await.unwrap();
    let rules = answer["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 8, "{answer}");
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    process.stop().await.unwrap();
}
