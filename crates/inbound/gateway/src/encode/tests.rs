use http::Request;
use http_body_util::BodyExt;

use super::*;

#[tokio::test]
async fn each_fault_has_a_problem_with_its_code() {
    let answers = RouteAnswers::of(&AnswerSettings::default()).unwrap();
    let (head, ()) = Request::get("/").header("accept", "*/*").body(()).unwrap().into_parts();
    let client = Negotiation::of(&head);
    let (head, ()) = Request::get("/").header("accept", "text/html").body(()).unwrap().into_parts();
    let browser = Negotiation::of(&head);
    for fault in Fault::ALL {
        let answer = answers.fault(*fault, &client);
        assert_eq!(answer.status(), fault.status());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], fault.code());
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.ends_with('.')));
        let page = answers.fault(*fault, &browser).into_body().collect().await.unwrap().to_bytes();
        assert!(page.starts_with(b"<!doctype html>"));
    }
}
