"""Messages: what becomes of their places where the broker falls silent."""

from __future__ import annotations

import time

import pytest
from kombu import Connection, Queue

from gprojci_service import queue


def test_a_message_gives_its_place_back_where_its_acknowledgement_is_lost(broker_url):
    app = queue.celery_app(broker_url)
    options = {**app.conf.broker_transport_options, "socket_timeout": 0.3}
    with Connection(broker_url, transport_options=options) as connection, connection.channel() as channel:
        Queue("service", channel=channel).declare()
        channel.basic_qos(0, 1, False)
        for number in range(2):
            app.send_task(f"task-{number}", queue="service")
        message = channel.basic_get("service")
        assert not channel.qos.can_consume(), "there is one place"
        with app.connection_for_read() as other:
            other.default_channel.client.execute_command("CLIENT", "PAUSE", "1000", "ALL")
        with pytest.raises(connection.connection_errors):
            message.ack()
        assert channel.qos.can_consume()
        time.sleep(1)
        assert channel.client.hlen("unacked") == 1, "the broker delivers it again, much later"
        channel.basic_get("service").ack()
        assert channel.qos.can_consume()
