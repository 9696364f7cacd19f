from onebus.log.stored import StoredBatch
from onebus.stores.news import News
from onebus.stores.switchboard import MAX_WAITING_NEWS, MAX_WAITING_NEWS_BYTES, Watch


def news_of(*last_ids: int, blob: bytes = b"blob", epoch: str = "e") -> list[News]:
    return [News(epoch, StoredBatch(last_id, 1, blob, 0)) for last_id in last_ids]


def watch_that_heard(*news: News | None) -> Watch:
    watch = Watch("log")
    for one in news:
        watch.wake(one)
    return watch


def last_ids(watch: Watch, *, after: int) -> list[int]:
    news = watch.take_news("e", after)
    assert news is not None
    return [batch.last_id for batch in news]


def test_a_reader_that_is_told_everything_need_not_look() -> None:
    watch = watch_that_heard(*news_of(1, 2, 3))

    assert last_ids(watch, after=1) == [2, 3]
    assert last_ids(watch_that_heard(*news_of(1)), after=1) == []


def test_a_reader_looks_by_itself_when_something_is_missing() -> None:
    assert watch_that_heard(*news_of(3)).take_news("e", 1) is None
    assert watch_that_heard(*news_of(2), None).take_news("e", 1) is None
    assert watch_that_heard(*news_of(2, epoch="another life")).take_news("e", 1) is None


def test_what_comes_after_a_look_is_news_again() -> None:
    watch = watch_that_heard(None, *news_of(1))
    assert watch.take_news("e", 0) is None

    watch.wake(*news_of(2))

    assert last_ids(watch, after=1) == [2]


def test_few_news_are_kept_for_a_reader_that_is_far_behind() -> None:
    many = watch_that_heard(*news_of(*range(1, MAX_WAITING_NEWS + 2)))
    large = watch_that_heard(*news_of(*range(1, 6), blob=bytes(MAX_WAITING_NEWS_BYTES // 4)))

    assert many.take_news("e", 0) is None
    assert large.take_news("e", 0) is None
