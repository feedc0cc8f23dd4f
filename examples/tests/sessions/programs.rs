//! quickstart, wecom and business_fn.

use std::process::Output;
use std::time::Duration;

use idem_tests::{Process, RedisServer};
use serde_json::json;
use tokio::process::Command;

const QUICKSTART: &str = env!("CARGO_BIN_EXE_quickstart");
const WECOM: &str = env!("CARGO_BIN_EXE_wecom");
const BUSINESS_FN: &str = env!("CARGO_BIN_EXE_business_fn");

async fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Output, String) {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("REDIS_URL").env_remove("RUST_LOG").envs(variables.iter().copied());
    let output = tokio::time::timeout(Duration::from_secs(60), command.kill_on_drop(true).output()).await;
    let output = output.expect("the program ends").expect("the program runs");
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    (output, text)
}

#[tokio::test]
async fn quickstart_executes_one_copy_with_either_store() {
    let redis = RedisServer::start();
    for arguments in [&[][..], &["--store", &redis.url()], &["--store", &redis.url()]] {
        let (output, text) = run(QUICKSTART, arguments, &[]).await;
        assert!(output.status.success(), "{text}");
        let row = |name: &str| {
            let row = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            row.split_whitespace().take(4).map(|cell| cell.parse::<u32>().unwrap()).collect::<Vec<_>>()
        };
        let [sent, executed, replayed, refused] = row("at once")[..] else { panic!("{text}") };
        assert_eq!([sent, executed, replayed + refused], [100, 1, 99], "{text}");
        assert_eq!(row("later"), [20, 0, 20, 0], "{text}");
    }
}

#[tokio::test]
async fn quickstart_says_so_when_it_cannot_show_it() {
    let mut redis = RedisServer::start();
    redis.stop();
    let (output, text) = run(QUICKSTART, &["--store", &redis.url()], &[]).await;
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("store-unavailable"), "{text}");
    for arguments in [&["--stores"][..], &["--store"], &["--store", "postgres://localhost"]] {
        let (output, _) = run(QUICKSTART, arguments, &[]).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: quickstart"), "{arguments:?}");
    }
}

#[tokio::test]
async fn wecom_replies_once_to_a_message_and_acknowledges_every_copy() {
    let redis = RedisServer::start();
    let url = redis.url();
    for variables in [&[][..], &[("REDIS_URL", &*url)]] {
        let wecom = Process::start_with_env(WECOM, &["127.0.0.1:0"], variables).await;
        let client = wecom.client();
        let message = json!({"instance_guid": "wx-1", "MsgId": 7773749793478223190_u64, "text": "hi"});
        let resent = json!({"MsgId": "7773749793478223190", "instance_guid": "wx-1", "text": "hi", "resent": true});
        let without_ids = json!({"instance_guid": "wx-1", "event": "heartbeat"});
        for (body, replayed) in [(&message, false), (&message, true), (&resent, true), (&without_ids, false)] {
            // As curl sends it: the content type is not JSON's.
            let form = "application/x-www-form-urlencoded";
            let reply = client.post("/webhooks/wecom").header("content-type", form).body(body.to_string()).send().await;
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(reply.text(), r#"{"status":"success"}"#);
            assert_eq!(reply.replayed(), replayed, "{body}");
        }
        assert_eq!(client.get("/stats").send().await.text(), r#"{"replies":1,"without_ids":1}"#);
    }
}

#[tokio::test]
async fn business_fn_pays_each_salary_once_over_all_processes() {
    let redis = RedisServer::start();
    let url = redis.url();
    let (output, memory) = run(BUSINESS_FN, &["alice", "2026-03"], &[]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(memory.ends_with("payouts by this process: 2\n"), "{memory}");
    assert!(memory.contains("another amount     refused: "), "{memory}");

    let (_, first) = run(BUSINESS_FN, &["alice", "2026-03"], &[("REDIS_URL", &url)]).await;
    let (_, second) = run(BUSINESS_FN, &["alice", "2026-03"], &[("REDIS_URL", &url)]).await;
    let payout = |text: &str| text.lines().find_map(|line| line.strip_prefix("first call")).map(str::to_owned);
    assert_eq!(payout(&first), payout(&second));
    assert!(first.ends_with("payouts by this process: 2\n"), "{first}");
    assert!(second.ends_with("payouts by this process: 0\n"), "{second}");
}
