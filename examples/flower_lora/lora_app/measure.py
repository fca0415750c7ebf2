"""A grid that counts what goes through it, compressed or not."""


class MeasuredGrid:
    def __init__(self, grid):
        self.grid = grid
        self.uplink_bytes = 0
        self.downlink_bytes = 0
        self.replies = 0

    def send_and_receive(self, messages, **options):
        messages = list(messages)
        self.downlink_bytes += sum(count_bytes(message) for message in messages)
        replies = list(self.grid.send_and_receive(messages, **options))
        for reply in replies:
            if reply.has_content():
                self.replies += 1
                self.uplink_bytes += count_bytes(reply)
        return replies

    def __getattr__(self, name):
        return getattr(self.grid, name)


def count_bytes(message):
    return sum(record.count_bytes() for record in message.content.values())
