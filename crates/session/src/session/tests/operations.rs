//! Operations and their answers.

use super::*;

#[test]
fn several_operations_travel_in_one_message_and_are_answered_one_by_one() {
    let (mut story, _) = Story::attached(&[]);
    let (a, _) = story.register("a");
    let (b, _) = story.register("b");
    story.session.flush(&mut story.out);
    assert_eq!(story.out.len(), 1);
    let requests = story.requests();
    assert_eq!(requests.iter().map(|request| request.seq).collect::<Vec<_>>(), [1, 2]);
    story.answer(2, "v2");
    assert_eq!((story.done(a), story.done(b)), (None, Some(Ok("v2".into()))));
    story.answer(2, "v2");
    assert_eq!(story.done(b), None, "an answer counts once");
    story.answer(1, "v1");
    assert_eq!(story.done(a), Some(Ok("v1".into())));
}

#[test]
fn registering_what_another_client_holds_is_rejected_to_the_caller_only() {
    let (mut story, _) = Story::attached(&["m1"]);
    let (operation, registration) = story.register("m2");
    let seq = story.requests()[0].seq;
    story.reject_request(seq, Error::new(ErrorCode::AlreadyRegistered, "taken").field("id"));
    assert_eq!(story.code(operation), Some(ErrorCode::AlreadyRegistered));
    assert_eq!(story.ended(registration), None, "it never began");
    story.lose();
    assert_eq!(ids(&story.connect()), ["m1"]);
}

#[test]
fn a_rejected_update_is_not_wanted_any_more() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let first = story.session.update("m1", registrations[0], Update::merge().set("a", "1"), None).unwrap();
    let bad = story.session.update("m1", registrations[0], Update::merge().set("b", "x".repeat(9999)), None).unwrap();
    let last = story.session.update("m1", registrations[0], Update::merge().set("c", "3"), None).unwrap();
    let seqs: Vec<u64> = story.requests().iter().map(|request| request.seq).collect();
    story.answer(seqs[0], "v2");
    story.reject_request(seqs[1], Error::new(ErrorCode::TooLarge, "large").field("metadata"));
    story.answer(seqs[2], "v3");
    assert!(story.done(first).unwrap().is_ok());
    assert_eq!(story.code(bad), Some(ErrorCode::TooLarge));
    assert!(story.done(last).unwrap().is_ok());
    story.lose();
    let attach = story.connect();
    let metadata = &attach.members[0].member.as_ref().unwrap().metadata;
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn a_conditional_update_is_not_repeated_after_a_loss() {
    let (mut story, registrations) = Story::attached(&["m1"]);
    let update = Update::merge().set("k", "v").if_version("v1");
    let operation = story.session.update("m1", registrations[0], update, None).unwrap();
    assert_eq!(story.requests().len(), 1);
    story.lose();
    assert_eq!(story.code(operation), Some(ErrorCode::OutcomeUnknown));
    let attach = story.connect();
    assert!(attach.members[0].member.as_ref().unwrap().metadata.is_empty());
}

#[test]
fn an_operation_not_sent_in_time_is_withdrawn() {
    let mut story = Story::new();
    let deadline = story.now + SECOND;
    let (operation, _) = story.session.register(MemberSpec::new("m1", "s"), false, Some(deadline)).unwrap();
    story.now = deadline;
    story.session.wake(story.now, &mut story.out);
    assert_eq!(story.code(operation), Some(ErrorCode::Timeout));
    assert!(ids(&story.connect()).is_empty());
}
